<?php

declare(strict_types=1);

namespace Ratelimitd;

/** A request did not leave this process as a whole, so nothing was charged. @internal */
final class NeverSent extends \RuntimeException
{
}
