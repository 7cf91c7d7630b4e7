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


class InvalidRecording(InvalidSynthesis):
    """A recording that no voice can be made from. `reason` is one of RECORDING_UNREADABLE, RECORDING_UNSUPPORTED,
    RECORDING_TOO_SHORT, RECORDING_TOO_LONG, RECORDING_SILENT, RECORDING_CLIPPED."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__("reference", message)
        self.reason = reason


class EngineOverloaded(EngineError):
    """No room for another stream or recording now; the caller may try again."""


class EngineUnavailable(EngineError):
    """The workers are starting, restarting or stopped; streams that were live end with this."""


class StreamFailed(EngineError):
    """This one stream broke inside the engine; others are untouched."""


class CodecDiffers(EngineError):
    """Stored codes of a codec that none of the loaded checkpoints has."""


class EncodingFailed(EngineError):
    """The encoder died of one recording, hung on it or broke at it; others are untouched."""
