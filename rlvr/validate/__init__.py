"""Mistakes in the settings, found before anything is loaded: values out of range, unread settings, impossible combinations."""
