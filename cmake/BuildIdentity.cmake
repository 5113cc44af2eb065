# Script: writes a source file that defines clikart::BuildIdentity() as the digest of the files that the manifest
# lists. Called at build time, whenever one of them changed.
file(STRINGS ${MANIFEST} lines)
set(text)
foreach(line IN LISTS lines)
  if(line MATCHES "^file (.*)$")
    set(file ${CMAKE_MATCH_1})
    file(SHA256 ${file} digest)
    # Files outside of the project, headers of the system, by their name: where they lie makes no difference.
    cmake_path(IS_PREFIX ROOT ${file} inside)
    if(inside)
      file(RELATIVE_PATH name ${ROOT} ${file})
    else()
      get_filename_component(name ${file} NAME)
    endif()
    string(APPEND text "${name} ${digest}\n")
  else()
    string(APPEND text "${line}\n")
  endif()
endforeach()
string(SHA256 identity "${text}")
file(WRITE ${OUTPUT} "#include \"build_identity.h\"\n\nnamespace clikart {\n
std::string_view BuildIdentity() { return \"${identity}\"; }\n
}  // namespace clikart\n")
