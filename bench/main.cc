#include "bench/program.h"

int main(int argc, char** argv) { return zoffload::bench::run_program(argc, argv); }
