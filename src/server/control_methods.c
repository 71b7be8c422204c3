#include "server/control_methods.h"

#include "server/operator_log.h"
#include "server/session.h"

int reload_run(struct params *params)
{
    bool is_dry_run = false;
    if (params_reload(params, &is_dry_run) != 0) return -1;
    if (!is_dry_run) operator_log_note(params->session, "reload", NULL);
    return late_answer_begin(params, is_dry_run ? LATE_DRY_RUN : LATE_RELOAD);
}

int config_run(struct params *params)
{
    return late_answer_begin(params, LATE_CONFIG);
}
