# The blob runs wherever it is mapped, without a loader, so it must not need relocations.
execute_process(COMMAND ${READELF} -rW ${ELF} OUTPUT_VARIABLE relocations RESULT_VARIABLE result)
if(NOT result EQUAL 0 OR NOT relocations MATCHES "There are no relocations in this file")
  message(FATAL_ERROR "the sweeper needs relocations:\n${relocations}")
endif()
