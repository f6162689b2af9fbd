# The helper relocates the image to its address and does nothing else that a loader does: nothing
# binds its symbols, gives it thread-local storage or runs its constructors.
execute_process(COMMAND ${READELF} -rlW ${ELF} OUTPUT_VARIABLE text RESULT_VARIABLE result)
string(REGEX MATCHALL "R_[A-Z0-9_]+" relocations "${text}")
list(REMOVE_DUPLICATES relocations)
list(FILTER relocations EXCLUDE REGEX "^R_[A-Z0-9_]+_RELATIVE$")
if(NOT result EQUAL 0 OR relocations OR text MATCHES "TLS" OR text MATCHES "init_array")
  message(FATAL_ERROR "the injected recorder needs a loader (${relocations}):\n${text}")
endif()

# Functions that pass a call on without a mark leave by a jump if the compiler has made one of it:
# then they call only functions of the recorder, which return on their own.
execute_process(COMMAND ${OBJDUMP} -d --no-show-raw-insn --section=passes_on ${ELF}
                OUTPUT_VARIABLE code RESULT_VARIABLE result)
string(REGEX MATCHALL "\n[0-9a-f]+ <[^>]*>:" functions "${code}")
string(REGEX MATCHALL "[ \t]${CALL}[^\n]*" calls "${code}")
if(NOT result EQUAL 0 OR NOT functions)
  message(FATAL_ERROR "the injected recorder has no functions that pass calls on:\n${code}")
endif()
foreach(call ${calls})
  string(REGEX REPLACE ".*<([^+>]*).*" "\\1" callee "${call}")
  if(NOT call MATCHES "<" OR call MATCHES "\\*" OR functions MATCHES "<${callee}>")
    message(FATAL_ERROR "a thread that is in the allocator would return to the recorder unseen:\n${call}")
  endif()
endforeach()
