# Runs at `cmake --install`: installs the units, the group's declaration and a first configuration below the prefix. The unit
# files in this folder are written for /usr. An existing configuration is left alone.
# CMakeLists.txt sets RL_SOURCE_DIR, RL_BINARY_DIR and RL_BINDIR.
set(etc ${CMAKE_INSTALL_PREFIX}/etc)
if(CMAKE_INSTALL_PREFIX MATCHES "^/usr(/local)?/?$")
    set(etc /etc) # where systemd and administrators look
endif()

file(GLOB units ${RL_SOURCE_DIR}/systemd/*.service ${RL_SOURCE_DIR}/systemd/*.socket)
foreach(unit ${units})
    get_filename_component(name ${unit} NAME)
    file(READ ${unit} text)
    string(REPLACE "/usr/bin/" "${CMAKE_INSTALL_PREFIX}/${RL_BINDIR}/" text "${text}")
    string(REPLACE "/etc/ratelimitd/" "${etc}/ratelimitd/" text "${text}")
    file(WRITE ${RL_BINARY_DIR}/units/${name} "${text}")
    file(INSTALL ${RL_BINARY_DIR}/units/${name} DESTINATION ${CMAKE_INSTALL_PREFIX}/lib/systemd/system)
endforeach()

file(GLOB groups ${RL_SOURCE_DIR}/systemd/*.sysusers)
foreach(group ${groups})
    get_filename_component(name ${group} NAME_WE)
    file(INSTALL ${group} DESTINATION ${CMAKE_INSTALL_PREFIX}/lib/sysusers.d RENAME ${name}.conf)
endforeach()

# In the folder that it has here, so that the links of the documents hold.
file(INSTALL ${RL_SOURCE_DIR}/systemd/redis.conf ${RL_SOURCE_DIR}/systemd/metrics.conf DESTINATION ${CMAKE_INSTALL_PREFIX}/share/doc/ratelimitd/systemd)

if(EXISTS $ENV{DESTDIR}${etc}/ratelimitd/ratelimitd.yaml)
    message("-- Left alone: $ENV{DESTDIR}${etc}/ratelimitd/ratelimitd.yaml")
else()
    file(INSTALL ${RL_SOURCE_DIR}/systemd/ratelimitd.yaml DESTINATION ${etc}/ratelimitd)
endif()
