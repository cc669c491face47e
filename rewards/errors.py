"""The one exception that stands for a user's mistake."""


class UserError(Exception):
    """A mistake in what the user gave: a flag, template, dataset row, checkpoint or plugin.

    The message says what was given, what is allowed and what to do. The command line prints it without a traceback
    and exits with status 2. Any other exception is a bug and keeps its traceback.
    """
