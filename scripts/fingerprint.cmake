# Writes a C++ source with a hash of files: cmake -DOUT=<source> "-DFILES=<a>;<b>" -P fingerprint.cmake
set(all "")
foreach(file IN LISTS FILES)
  file(SHA256 ${file} hash)
  string(APPEND all ${hash})
endforeach()
string(SHA256 hash "${all}")
file(WRITE ${OUT} "namespace glowplug::codegen {\nextern const char* const kFingerprint;\nconst char* const kFingerprint = \"${hash}\";\n}  // namespace glowplug::codegen\n")
