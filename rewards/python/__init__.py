"""Python for a model: programs run by an interpreter of our own, or by Python in a sandbox of the system.

environment   `--environment python`: the tool
interpreter   a subset of Python that can do nothing but compute and print
compiler      a program's statements as functions of ours; expressions: its expressions; scope: its names
values        what a program can hold, and what that costs; operators: what it can do with it
functions     what it can call; methods: of values; modules: that it can import
bubblewrap    the whole of Python's standard library, in a sandbox of Linux
inside        what runs there
"""
