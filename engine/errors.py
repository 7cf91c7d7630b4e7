"""Every error the engine raises on purpose: a small flat hierarchy. The service has the table to gRPC codes."""


class EngineError(Exception):
    """Base of all errors below. The message says what was wrong, where, and what to do; callers may see it."""


class CheckpointError(EngineError):
    """The checkpoint folder cannot be used: a file, tensor or setting is missing, left over or of a wrong shape."""


class InvalidSynthesis(EngineError):
    """A parameter of one utterance is wrong. `field` names it (`speaker`, `language`, `temperature`, ...)."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class UnknownSpeaker(InvalidSynthesis):
    """The checkpoint has no speaker of this name."""


class UnsupportedTask(InvalidSynthesis):
    """The loaded checkpoint lacks what the request needs (cloning on CustomVoice, a speaker on VoiceDesign, ...)."""


class EngineOverloaded(EngineError):
    """No room for another stream now; the caller may try again."""


class EngineUnavailable(EngineError):
    """The workers are starting, restarting or stopped; streams that were live end with this."""


class StreamFailed(EngineError):
    """This one stream broke inside the engine; others are untouched."""
