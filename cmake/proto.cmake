# loam_proto(NAME ROOT dir PROTOS a/b.proto … [IMPORTS dir …] [DEPS …]): a library of the Protocol Buffers and gRPC code generated from the files,
# which are named relative to ROOT and included as "a/b.pb.h" and "a/b.grpc.pb.h". Files that they import lie in the
# folders IMPORTS; DEPS are the libraries of these.
#
# Debian ships no CMake configuration for gRPC and Protocol Buffers: pkg-config finds them.
function(loam_proto name)
  cmake_parse_arguments(arg "" "ROOT" "PROTOS;IMPORTS;DEPS" ${ARGN})
  list(TRANSFORM arg_IMPORTS PREPEND "-I" OUTPUT_VARIABLE imports)
  if(NOT TARGET PkgConfig::LOAM_GRPC)
    pkg_check_modules(LOAM_GRPC REQUIRED IMPORTED_TARGET GLOBAL grpc++ protobuf)
  endif()
  find_program(LOAM_PROTOC protoc REQUIRED)
  find_program(LOAM_GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/proto)
  file(MAKE_DIRECTORY ${out})
  set(generated "")
  foreach(proto ${arg_PROTOS})
    string(REGEX REPLACE "\\.proto$" "" stem ${proto})
    set(files ${out}/${stem}.pb.cc ${out}/${stem}.pb.h ${out}/${stem}.grpc.pb.cc ${out}/${stem}.grpc.pb.h)
    add_custom_command(
      OUTPUT ${files}
      COMMAND ${LOAM_PROTOC} -I ${arg_ROOT} ${imports} --cpp_out=${out} --grpc_out=${out}
              --plugin=protoc-gen-grpc=${LOAM_GRPC_CPP_PLUGIN} ${proto}
      DEPENDS ${arg_ROOT}/${proto} ${arg_DEPS}
      VERBATIM)
    list(APPEND generated ${out}/${stem}.pb.cc ${out}/${stem}.grpc.pb.cc)
  endforeach()
  # Generated code is compiled without our warnings.
  add_library(${name} STATIC ${generated})
  target_include_directories(${name} SYSTEM PUBLIC ${out})
  target_link_libraries(${name} PUBLIC loam_flags PkgConfig::LOAM_GRPC ${arg_DEPS})
endfunction()
