"""The door for clients of OpenAI, vLLM-Omni and SGLang-Omni: HTTP, server-sent events and vLLM-Omni's WebSocket."""
