"""The errors that reach people, by whose turn it is to act."""


class LikenError(Exception):
    """An error whose text is one line that says what happened and what to do next."""


class RequestError(LikenError):
    """What was asked for is wrong or not to be had: whoever asked has to change the request."""


class MachineError(LikenError):
    """Something of this machine could not be read or written; trying again later may work."""
