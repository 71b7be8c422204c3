# Seeds for the fuzz targets that read the protocol: one file per golden vector, in fuzz/seeds/TARGET of the build folder.
file(GLOB vector_files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/proto/vectors/*.txt)
foreach(target fuzz_scan fuzz_request fuzz_differential)
    set(seeds ${PROJECT_BINARY_DIR}/fuzz/seeds/${target})
    add_custom_command(
        OUTPUT ${seeds}
        COMMAND ${CMAKE_COMMAND} -E rm -rf ${seeds}
        COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tests/vectors.py ${seeds}
        DEPENDS ${vector_files} ${PROJECT_SOURCE_DIR}/tests/vectors.py
        COMMENT "Seeding ${target} from proto/vectors")
    add_custom_target(${target}_seeds DEPENDS ${seeds})
    add_dependencies(${target} ${target}_seeds)
endforeach()
