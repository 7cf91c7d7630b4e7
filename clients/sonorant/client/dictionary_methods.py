"""The methods of `SpeechClient` for pronunciation dictionaries that the server keeps."""

from collections.abc import Mapping

from sonorant.client.unary_calls import UnaryCalls
from sonorant.tts.v1.dictionary_pb2 import Dictionary
from sonorant.tts.v1.dictionary_service_pb2 import (
    DeleteDictionaryRequest,
    GetDictionaryRequest,
    ListDictionariesRequest,
    PutDictionaryRequest,
)
from sonorant.tts.v1.dictionary_service_pb2_grpc import DictionaryServiceStub


class DictionaryMethods(UnaryCalls):
    """Every method raises the errors of `sonorant.client.errors`."""

    _dictionaries: DictionaryServiceStub

    async def dictionaries(self) -> list[Dictionary]:
        """Return all dictionaries, each in its newest version and without its phrases."""
        listed = await self._unary(self._dictionaries.ListDictionaries, ListDictionariesRequest())
        return list(listed.dictionaries)

    async def dictionary(self, dictionary_id: str, version: int = 0) -> Dictionary:
        """Return a version of a dictionary, with its phrases; 0 = the newest one."""
        request = GetDictionaryRequest(dictionary_id=dictionary_id, version=version)
        dictionary: Dictionary = (await self._unary(self._dictionaries.GetDictionary, request)).dictionary
        return dictionary

    async def put_dictionary(self, dictionary_id: str, pronunciations: Mapping[str, str]) -> Dictionary:
        """Make a dictionary, or its next version, of phrases and what is said for them: {"SQL": "sequel"}."""
        request = PutDictionaryRequest(dictionary_id=dictionary_id, pronunciations=pronunciations)
        dictionary: Dictionary = (await self._unary(self._dictionaries.PutDictionary, request)).dictionary
        return dictionary

    async def delete_dictionary(self, dictionary_id: str, *, allow_missing: bool = False) -> None:
        """Delete a dictionary with all its versions."""
        request = DeleteDictionaryRequest(dictionary_id=dictionary_id, allow_missing=allow_missing)
        await self._unary(self._dictionaries.DeleteDictionary, request)
