# Writes OUT, a header with the git revision of SOURCE, "-dirty" behind it if files have been changed since.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
                OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT revision)
  set(revision "unknown")
endif()
file(WRITE ${OUT}.new "#pragma once\n#define LOAM_REVISION \"${revision}\"\n")
file(COPY_FILE ${OUT}.new ${OUT} ONLY_IF_DIFFERENT)
