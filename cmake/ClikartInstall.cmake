# The installed package: find_package(clikart) gives clikart::clikart. Component "development", so that a
# wheel, which installs "python" alone, stays free of it.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(clikart_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/clikart)

# What users link: the runtime with everything below it.
add_library(clikart INTERFACE)
add_library(clikart::clikart ALIAS clikart)
target_link_libraries(clikart INTERFACE clikart_runtime)
target_compile_features(clikart INTERFACE cxx_std_20)
# The object of the LLVM emitter is found by the runpath of what links the package.
if(CLIKART_LLVM)
  target_link_options(clikart INTERFACE $<BUILD_INTERFACE:LINKER:-rpath,${CMAKE_RUNTIME_OUTPUT_DIRECTORY}>
                                        $<INSTALL_INTERFACE:LINKER:-rpath,$<INSTALL_PREFIX>/${CMAKE_INSTALL_LIBDIR}>)
endif()

set(clikart_floors clikart_ir clikart_codegen clikart_cache clikart_runtime)
foreach(floor ${clikart_floors})
  string(REPLACE "clikart_" "" export_name ${floor})
  set_target_properties(${floor} PROPERTIES EXPORT_NAME ${export_name})
endforeach()
foreach(floor ir codegen runtime)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${floor}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
          COMPONENT development FILES_MATCHING PATTERN "*.h")
endforeach()
install(TARGETS clikart ${clikart_floors} EXPORT clikart-targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(EXPORT clikart-targets NAMESPACE clikart:: DESTINATION ${clikart_package_dir} COMPONENT development)

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/clikart-config.cmake.in
                              ${PROJECT_BINARY_DIR}/clikart-config.cmake INSTALL_DESTINATION ${clikart_package_dir})
# Interfaces may change until version 1: only the same minor version is compatible.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/clikart-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/clikart-config.cmake ${PROJECT_BINARY_DIR}/clikart-config-version.cmake
        DESTINATION ${clikart_package_dir} COMPONENT development)
