# Seeds for the fuzz targets that read the protocol: one file per golden vector, in fuzz/seeds/TARGET of the build folder.
file(GLOB vector_files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/proto/vectors/*.txt)
foreach(target fuzz_scan fuzz_request fuzz_differential fuzz_client)
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

# The configuration's seed is the sample that is installed.
set(seeds ${PROJECT_BINARY_DIR}/fuzz/seeds/fuzz_config)
add_custom_command(
    OUTPUT ${seeds}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${seeds}
    COMMAND ${CMAKE_COMMAND} -E copy ${PROJECT_SOURCE_DIR}/systemd/ratelimitd.yaml ${seeds}
    DEPENDS ${PROJECT_SOURCE_DIR}/systemd/ratelimitd.yaml
    COMMENT "Seeding fuzz_config from the sample")
add_custom_target(fuzz_config_seeds DEPENDS ${seeds})
add_dependencies(fuzz_config fuzz_config_seeds)
