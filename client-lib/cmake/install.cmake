# cmake --install BUILD --component client: headers, static libraries, find_package(loam) and pkg-config.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The archives in the order of dependence, users first, because a linker reads them once from left to right.
set(LOAM_CLIENT_LIBRARIES loam_client loam_client_index loam_bdtree loam_bdtree_cache loam_bdtree_node loam_bdtree_key loam_bdtree_entries loam_bdtree_store
                          loam_client_driver loam_client_core loam_rpc loam_net loam_net_tcp loam_net_rdma loam_net_link
                          loam_net_transport loam_fiber loam_latency loam_wire
                          loam_result loam_expression loam_schema loam_snapshot loam_base)
install(TARGETS ${LOAM_CLIENT_LIBRARIES} loam_flags EXPORT loamTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT client)
if(LOAM_LTO)
  # The archives contain bytecode and object code. Programs of this tree link the bytecode; programs of other projects
  # link the object code, with any compiler and options. g++ 12 gives false warnings at -O3, for example for operator+ of
  # std::string (GCC bug 105651), and only where it writes object code.
  foreach(library ${LOAM_CLIENT_LIBRARIES})
    target_compile_options(${library} PRIVATE -ffat-lto-objects -Wno-stringop-overflow -Wno-stringop-overread
                                              -Wno-array-bounds -Wno-maybe-uninitialized)
  endforeach()
  install(CODE "
    foreach(library ${LOAM_CLIENT_LIBRARIES})
      set(archive \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/lib\${library}.a\")
      execute_process(COMMAND \"${CMAKE_COMMAND}\" -DARCHIVE=\${archive} -DOBJCOPY=${CMAKE_OBJCOPY} -DREADELF=${CMAKE_READELF}
                              -P \"${CMAKE_CURRENT_LIST_DIR}/object_code.cmake\" COMMAND_ERROR_IS_FATAL ANY)
    endforeach()"
    COMPONENT client)
endif()
set_target_properties(loam_client PROPERTIES EXPORT_NAME client)
target_compile_features(loam_client INTERFACE cxx_std_20)

# The other folders of include/ beside loam/client are for other parts of the product, and are not installed.
install(DIRECTORY ${CMAKE_CURRENT_LIST_DIR}/../include/loam/client DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/loam
  COMPONENT client FILES_MATCHING PATTERN *.h)
# The headers of common/ that the public headers include. They include them as "common/…"; the include path
# include/loam makes these names valid.
foreach(header base/assert.h base/bytes.h base/ids.h base/statistics.h base/status.h latency/histogram.h latency/operation_kind.h latency/recorder.h
               latency/slow_operations.h latency/stage.h expression/builder.h expression/selection.h net/transport/transport_counters.h schema/arrow.h schema/calendar.h schema/chunk.h schema/decimal.h schema/expression.h schema/field_type.h
               schema/predicate.h schema/projection.h
               schema/query.h schema/row.h schema/schema.h schema/value.h wire/opcode.h)
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/common/${header}
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/loam/common/${folder} COMPONENT client)
endforeach()

install(EXPORT loamTargets NAMESPACE loam:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/loam COMPONENT client)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/loamConfig.cmake.in
  ${CMAKE_CURRENT_BINARY_DIR}/loamConfig.cmake INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/loam)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/loamConfigVersion.cmake
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/loamConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/loamConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/loam COMPONENT client)

# The prefix in pkg-config's file is that of the installation, which is known only when it runs.
string(REPLACE ";" " -l" LOAM_PC_LIBRARIES "-l${LOAM_CLIENT_LIBRARIES}")
if(LOAM_ASSERTIONS)
  set(LOAM_PC_DEFINITIONS " -DLOAM_ASSERTIONS=1")
endif()
set(template ${CMAKE_CURRENT_LIST_DIR}/loam.pc.in)
install(CODE "
  set(CMAKE_INSTALL_LIBDIR \"${CMAKE_INSTALL_LIBDIR}\")
  set(CMAKE_INSTALL_INCLUDEDIR \"${CMAKE_INSTALL_INCLUDEDIR}\")
  set(PROJECT_VERSION \"${PROJECT_VERSION}\")
  set(LOAM_PC_LIBRARIES \"${LOAM_PC_LIBRARIES}\")
  set(LOAM_PC_DEFINITIONS \"${LOAM_PC_DEFINITIONS}\")
  get_filename_component(CMAKE_INSTALL_PREFIX \"\${CMAKE_INSTALL_PREFIX}\" ABSOLUTE)
  configure_file(\"${template}\" \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/pkgconfig/loam.pc\" @ONLY)"
  COMPONENT client)
