"""What is looked at before anything is trained: settings that don't go together, settings that nothing reads, right answers."""
