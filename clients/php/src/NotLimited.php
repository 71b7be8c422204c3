<?php

declare(strict_types=1);

namespace Ratelimitd;

/** Limit::NOT_LIMITED, which a function gives in place of a key or a policy: this request is not limited. */
enum NotLimited
{
    case NotLimited;
}
