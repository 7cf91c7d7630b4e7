"""The RPC methods of pronunciation dictionaries."""

import json
from typing import Any

from sonorant.service.calls import context as call_context
from sonorant.service.dictionaries.dictionaries import Dictionaries
from sonorant.service.errors import DictionaryNotFound
from sonorant.service.voices.dictionary_table import DictionaryVersion
from sonorant.tts.v1 import dictionary_pb2, dictionary_service_pb2, dictionary_service_pb2_grpc


class DictionaryServicer(dictionary_service_pb2_grpc.DictionaryServiceServicer):  # type: ignore[misc]
    def __init__(self, dictionaries: Dictionaries) -> None:
        self._dictionaries = dictionaries

    async def ListDictionaries(
        self, request: dictionary_service_pb2.ListDictionariesRequest, context: Any
    ) -> dictionary_service_pb2.ListDictionariesResponse:
        listed = await self._dictionaries.newest(call_context.current().caller)
        return dictionary_service_pb2.ListDictionariesResponse(dictionaries=map(_to_proto, listed))

    async def GetDictionary(
        self, request: dictionary_service_pb2.GetDictionaryRequest, context: Any
    ) -> dictionary_service_pb2.GetDictionaryResponse:
        caller = call_context.current().caller
        found = await self._dictionaries.find(caller, request.dictionary_id, request.version)
        dictionary = _to_proto(found)
        dictionary.versions.extend(await self._dictionaries.versions(found))
        return dictionary_service_pb2.GetDictionaryResponse(dictionary=dictionary)

    async def PutDictionary(
        self, request: dictionary_service_pb2.PutDictionaryRequest, context: Any
    ) -> dictionary_service_pb2.PutDictionaryResponse:
        caller = call_context.current().caller
        made = await self._dictionaries.put(caller, request.dictionary_id, request.pronunciations)
        return dictionary_service_pb2.PutDictionaryResponse(dictionary=_to_proto(made))

    async def DeleteDictionary(
        self, request: dictionary_service_pb2.DeleteDictionaryRequest, context: Any
    ) -> dictionary_service_pb2.DeleteDictionaryResponse:
        removed = await self._dictionaries.remove(call_context.current().caller, request.dictionary_id)
        if not removed and not request.allow_missing:
            raise DictionaryNotFound(request.dictionary_id)
        return dictionary_service_pb2.DeleteDictionaryResponse()


def _to_proto(made: DictionaryVersion) -> dictionary_pb2.Dictionary:
    dictionary = dictionary_pb2.Dictionary(
        dictionary_id=made.dictionary_id,
        version=made.version,
        pronunciations=json.loads(made.phrases) if made.phrases else None,
        num_phrases=made.num_phrases,
    )
    dictionary.create_time.FromNanoseconds(int(made.create_s * 1_000_000_000))
    return dictionary
