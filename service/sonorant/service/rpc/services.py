"""Registers the services of the gRPC port: those of the contract, Riva's, health, and reflection of them."""

import grpc
from google.rpc import error_details_pb2  # noqa: F401  so that reflection can resolve the details of errors
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.reflection import SERVICE_NAME as REFLECTION_V1ALPHA
from grpc_reflection.v1alpha.reflection import aio as reflection_aio

from sonorant.service.rpc.dictionaries import DictionaryServicer
from sonorant.service.rpc.health import HealthServicer
from sonorant.service.rpc.riva import RivaServicer
from sonorant.service.rpc.speech import TextToSpeechServicer
from sonorant.service.rpc.voices import VoiceServicer
from sonorant.tts.v1 import (
    dictionary_service_pb2,
    dictionary_service_pb2_grpc,
    text_to_speech_service_pb2,
    text_to_speech_service_pb2_grpc,
    voice_service_pb2,
    voice_service_pb2_grpc,
)

SERVICES = (
    text_to_speech_service_pb2.DESCRIPTOR.services_by_name["TextToSpeechService"].full_name,
    voice_service_pb2.DESCRIPTOR.services_by_name["VoiceService"].full_name,
    dictionary_service_pb2.DESCRIPTOR.services_by_name["DictionaryService"].full_name,
)
REFLECTION_V1 = "grpc.reflection.v1.ServerReflection"


def add_services(
    server: grpc.aio.Server,
    speech: TextToSpeechServicer,
    voices: VoiceServicer,
    dictionaries: DictionaryServicer,
    riva: RivaServicer,
    health: HealthServicer,
) -> None:
    text_to_speech_service_pb2_grpc.add_TextToSpeechServiceServicer_to_server(speech, server)
    voice_service_pb2_grpc.add_VoiceServiceServicer_to_server(voices, server)
    dictionary_service_pb2_grpc.add_DictionaryServiceServicer_to_server(dictionaries, server)
    server.add_generic_rpc_handlers((riva.handlers(),))
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    names = (*SERVICES, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, REFLECTION_V1ALPHA)
    reflection = reflection_aio.ReflectionServicer(names)
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(reflection, server)
    # grpcio-reflection serves only v1alpha. Version 1 has the same messages under another name.
    v1 = grpc.stream_stream_rpc_method_handler(
        reflection.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(REFLECTION_V1, {"ServerReflectionInfo": v1}),)
    )
