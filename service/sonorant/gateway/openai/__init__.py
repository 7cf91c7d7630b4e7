"""The endpoints for clients of OpenAI, vLLM-Omni and SGLang-Omni: HTTP, server-sent events, vLLM-Omni's WebSocket."""
