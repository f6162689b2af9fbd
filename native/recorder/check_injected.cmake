# The helper relocates the image to its address and does nothing else that a loader does: nothing
# binds its symbols, gives it thread-local storage or runs its constructors.
execute_process(COMMAND ${READELF} -rlW ${ELF} OUTPUT_VARIABLE text RESULT_VARIABLE result)
string(REGEX MATCHALL "R_[A-Z0-9_]+" relocations "${text}")
list(REMOVE_DUPLICATES relocations)
list(FILTER relocations EXCLUDE REGEX "^R_[A-Z0-9_]+_RELATIVE$")
if(NOT result EQUAL 0 OR relocations OR text MATCHES "TLS" OR text MATCHES "init_array")
  message(FATAL_ERROR "the injected recorder needs a loader (${relocations}):\n${text}")
endif()
