# Installs the package to a fresh folder, builds examples/cpp against it, and runs the example.
set(work ${BUILD_DIR}/installed_package)
set(stage ${work}/stage)
file(REMOVE_RECURSE ${work})

function(step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "failed (${result}): ${command}")
  endif()
endfunction()

set(launcher)
if(LAUNCHER)
  set(launcher -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER})
endif()
step(${CMAKE_COMMAND} --install ${BUILD_DIR} --component development --prefix ${stage})
# Nothing of the tree may be needed but the example itself.
file(COPY ${SOURCE_DIR}/examples/cpp/ DESTINATION ${work}/example)
step(${CMAKE_COMMAND} -S ${work}/example -B ${work}/build -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX}
     -DCMAKE_PREFIX_PATH=${stage} -DCMAKE_BUILD_TYPE=Release ${launcher})
step(${CMAKE_COMMAND} --build ${work}/build)
set(ENV{CLIKART_CACHE_DIR} ${work}/cache)
step(${work}/build/fused_block)
if(LLVM)
  step(${CMAKE_COMMAND} -E env CLIKART_EMITTER=llvm CLIKART_STRICT=1 ${work}/build/fused_block)
endif()
