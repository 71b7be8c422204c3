# libratelimit and ratelimitctl, which speak only the protocol.
#
# The library carries the codec and the small parts of src/base that it needs, so that a program links libratelimit and
# nothing else: msgpack-c is used for packing only, which is inline functions of its headers, so not even that remains.
# Neither form of the library shows a name that is not ratelimit_*: the shared one by hidden visibility and a version
# script, the static one because its objects are linked into one and their hidden names made local (a program with a
# buffer_init() or a map_insert() of its own links all the same).

# For ratelimitctl and the unit tests, which look inside.
rl_module(client src/client rl_proto rl_base)

file(GLOB proto_sources CONFIGURE_DEPENDS proto/*.c)
add_library(ratelimit_objects OBJECT ${client_sources} ${proto_sources} src/base/alloc.c src/base/buffer.c
            src/base/clock.c src/base/hash.c src/base/heap.c src/base/map.c)
set_target_properties(ratelimit_objects PROPERTIES POSITION_INDEPENDENT_CODE ON) # nothing else needs it
target_compile_options(ratelimit_objects PRIVATE -fvisibility=hidden)
target_include_directories(ratelimit_objects SYSTEM PRIVATE ${MSGPACK_INCLUDE_DIR})

add_library(ratelimit SHARED $<TARGET_OBJECTS:ratelimit_objects>)
set_target_properties(ratelimit PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
                      LINK_DEPENDS ${PROJECT_SOURCE_DIR}/src/client/ratelimit.map)
target_link_options(ratelimit PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/src/client/ratelimit.map)
if(NOT RL_SANITIZE)
    target_link_options(ratelimit PRIVATE -Wl,--no-undefined)
endif()

set(static_library ${CMAKE_ARCHIVE_OUTPUT_DIRECTORY}/libratelimit.a)
set(merged_object ${PROJECT_BINARY_DIR}/ratelimit.o)
add_custom_command(
    OUTPUT ${static_library}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_ARCHIVE_OUTPUT_DIRECTORY}
    COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -o ${merged_object} $<TARGET_OBJECTS:ratelimit_objects>
    COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${merged_object}
    COMMAND ${CMAKE_COMMAND} -E rm -f ${static_library}
    COMMAND ${CMAKE_AR} rcs ${static_library} ${merged_object}
    DEPENDS ratelimit_objects $<TARGET_OBJECTS:ratelimit_objects>
    COMMAND_EXPAND_LISTS VERBATIM
    COMMENT "Linking libratelimit.a from one object that shows only ratelimit_*")
add_custom_target(ratelimit_static ALL DEPENDS ${static_library})

# The way from the .pc file to the prefix, so that an installation may be moved or put under another prefix.
file(RELATIVE_PATH pc_up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" pc_up "${pc_up}")
configure_file(src/client/ratelimit.pc.in ${PROJECT_BINARY_DIR}/ratelimit.pc @ONLY)
install(TARGETS ratelimit LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT libratelimit
        NAMELINK_COMPONENT libratelimit)
install(FILES ${static_library} DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT libratelimit)
install(FILES src/client/ratelimit.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT libratelimit)
install(FILES src/client/libratelimit.3 DESTINATION ${CMAKE_INSTALL_MANDIR}/man3)
install(FILES ${PROJECT_BINARY_DIR}/ratelimit.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT libratelimit)

if(ctl_sources)
    # `test` reads its files as the daemon reads its own. Of the configuration it needs the reader of YAML alone.
    add_executable(ratelimitctl ${ctl_sources} src/config/yaml_tree.c)
    target_link_libraries(ratelimitctl PRIVATE rl_client rl_policy rl_limit PkgConfig::YAML)
    install(TARGETS ratelimitctl RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
    install(FILES src/ctl/ratelimitctl.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
    install(FILES src/ctl/ratelimitctl.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
            RENAME ratelimitctl)
    install(FILES src/ctl/ratelimitctl.zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions RENAME _ratelimitctl)
    install(FILES src/ctl/ratelimitctl.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()
