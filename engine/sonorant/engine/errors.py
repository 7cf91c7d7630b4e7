"""Every error that the engine raises on purpose, in a small flat hierarchy. The service maps them to gRPC statuses."""


class EngineError(Exception):
    """Base of all errors below. The message says what was wrong, where, and what to do; callers may see it."""


class CheckpointError(EngineError):
    """The checkpoint folder cannot be used: a file, tensor or setting is missing, unexpected or misshapen."""


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
    """No voice can be made from this recording. `reason` is one of RECORDING_UNREADABLE, RECORDING_UNSUPPORTED,
    RECORDING_TOO_SHORT, RECORDING_TOO_LONG, RECORDING_SILENT, RECORDING_CLIPPED."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__("reference", message)
        self.reason = reason

    def __reduce__(self) -> tuple[type["InvalidRecording"], tuple[str, str]]:
        return InvalidRecording, (self.reason, str(self))


class EngineOverloaded(EngineError):
    """There is no room for another stream or recording now; the caller may try again."""

    retry_s: float | None = None  # when there will probably be room, if somebody knows


class EngineUnavailable(EngineError):
    """The workers are starting, restarting or stopped; the caller may try again."""


class StreamFailed(EngineError):
    """One stream failed inside the engine; others are not affected."""


class CodecDiffers(EngineError):
    """The stored codes were made with a codec that none of the loaded checkpoints has."""


class EncodingFailed(EngineError):
    """The encoder died, hung or failed at one recording; others are not affected."""
