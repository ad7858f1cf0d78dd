# cmake -DARCHIVE=lib.a -DOBJCOPY=objcopy -DREADELF=readelf -P object_code.cmake
#
# Removes the bytecode from an archive that was compiled with -flto -ffat-lto-objects, and leaves the object code. Only
# the compiler that wrote the bytecode can read it, and g++ would compile it again in every program that links the
# archive.
execute_process(COMMAND ${READELF} --symbols --wide ${ARCHIVE} OUTPUT_VARIABLE symbols
                COMMAND_ERROR_IS_FATAL ANY)
if(symbols MATCHES "__gnu_lto_slim")
  message(FATAL_ERROR "${ARCHIVE} holds bytecode without object code: compile it with -ffat-lto-objects")
endif()
execute_process(COMMAND ${OBJCOPY} --remove-section=.gnu.lto_* --remove-section=.gnu.debuglto_*
                        --strip-symbol=__gnu_lto_v1 ${ARCHIVE} COMMAND_ERROR_IS_FATAL ANY)
