/*
 * role.h: what a connection may ask for. Each role contains the one before it.
 */
#ifndef RL_BASE_ROLE_H
#define RL_BASE_ROLE_H

enum role {
    ROLE_NONE,     /* nothing */
    ROLE_CLIENT,   /* checks, and all else that a service asks for itself */
    ROLE_OPERATOR, /* sees what others ask for */
    ROLE_ADMIN,    /* changes what the daemon does; every connection to the control socket */
};

#define ROLE_WORDS "none client operator admin" /* as in the configuration, in the order of the enum */

#endif
