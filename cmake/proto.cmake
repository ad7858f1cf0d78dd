# loam_proto(NAME ROOT dir PROTOS a/b.proto …): a library of the Protocol Buffers and gRPC code generated from the files,
# which are named relative to ROOT and included as "a/b.pb.h" and "a/b.grpc.pb.h".
#
# Debian ships no CMake configuration for gRPC and Protocol Buffers: pkg-config finds them.
function(loam_proto name)
  cmake_parse_arguments(arg "" "ROOT" "PROTOS" ${ARGN})
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
      COMMAND ${LOAM_PROTOC} -I ${arg_ROOT} --cpp_out=${out} --grpc_out=${out}
              --plugin=protoc-gen-grpc=${LOAM_GRPC_CPP_PLUGIN} ${proto}
      DEPENDS ${arg_ROOT}/${proto}
      VERBATIM)
    list(APPEND generated ${out}/${stem}.pb.cc ${out}/${stem}.grpc.pb.cc)
  endforeach()
  # Generated code is held to nobody's warnings but its own.
  add_library(${name} STATIC ${generated})
  target_include_directories(${name} SYSTEM PUBLIC ${out})
  target_link_libraries(${name} PUBLIC loam_flags PkgConfig::LOAM_GRPC)
endfunction()
