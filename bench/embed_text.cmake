# Writes OUTPUT, which defines the function NAME() that gives the text of FILE:
# cmake -DFILE=... -DNAME=... -DHEADER=... -DOUTPUT=... -P embed_text.cmake
file(READ ${FILE} text)
file(WRITE ${OUTPUT} "#include \"${HEADER}\"\n\nconst char* zoffload::bench::${NAME}() {\n  return R\"~~~(${text})~~~\";\n}\n")
