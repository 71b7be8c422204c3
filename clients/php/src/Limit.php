<?php

declare(strict_types=1);

namespace Ratelimitd;

/** What one endpoint is limited by: a policy by name, or a limit of its own. */
final class Limit
{
    private const UNITS = [
        'ms' => 'ms', 's' => 's', 'm' => 'm', 'h' => 'h', 'd' => 'd',
        'second' => 's', 'minute' => 'm', 'hour' => 'h', 'day' => 'd',
    ];

    /** @var string|array<string, mixed> as it is sent */
    public readonly string|array $asked;

    /**
     * @param ?string $policy the name of a policy
     * @param ?string $limit instead: such as "10/5s" or "5000/day"; the daemon must allow inline policies
     * @param ?string $name of the endpoint, for a limit of its own: equal limits share their counters
     * @param ?callable $key of the request; null: do not limit; default: Key::ip()
     * @param int|callable $cost a number, or a function of the request
     * @param ?callable $skip of the request: true lets it through without asking
     * @param string|callable|null $onError 'allow', 'deny', or a function of the failure; default: the middleware's
     * @param ?callable $chargeWhen of the answer: false gives the unit back, to count only failed logins; named policies only
     * @param bool $slot the policy is a concurrency limit: hold a slot to the end of the request; named policies only
     * @param ?string $headers ietf, legacy, both or none, for this limit; default: the middleware's
     * @param ?callable $respond of the request and the decision: the answer to a request that this limit denies; default: the
     *     middleware's
     * @param bool $enabled false: as if it were not there
     */
    public function __construct(
        ?string $policy = null,
        ?string $limit = null,
        public readonly ?string $name = null,
        public readonly mixed $key = null,
        public readonly mixed $cost = 1,
        public readonly mixed $skip = null,
        public readonly mixed $onError = null,
        public readonly mixed $chargeWhen = null,
        public readonly bool $slot = false,
        public readonly ?string $headers = null,
        public readonly mixed $respond = null,
        public readonly bool $enabled = true,
    ) {
        self::checkForm($headers);
        self::checkRule($onError);
        if (($chargeWhen !== null || $slot) && $policy === null) {
            throw new \InvalidArgumentException(($slot ? 'slot' : 'chargeWhen') . ' needs a policy by name');
        }
        if (($policy === null) === ($limit === null)) {
            throw new \InvalidArgumentException('a limit has a policy, or a limit of its own such as "10/5s"');
        }
        if ($limit !== null && ($name ?? '') === '') {
            throw new \InvalidArgumentException('a limit of its own needs a name: that of its endpoint');
        }
        $this->asked = $policy ?? self::settings($limit);
    }

    /** Is something held until the request has ended? */
    public function isHeld(): bool
    {
        return $this->slot || $this->chargeWhen !== null;
    }

    /** @internal */
    public static function checkForm(?string $headers): void
    {
        if (!in_array($headers, ['ietf', 'legacy', 'both', 'none', null], true)) {
            throw new \InvalidArgumentException("headers is ietf, legacy, both or none, not $headers");
        }
    }

    /** @internal */
    public static function checkRule(mixed $onError): void
    {
        if (!in_array($onError, ['allow', 'deny', null], true) && !is_callable($onError)) {
            throw new \InvalidArgumentException('onError is "allow", "deny" or a function');
        }
    }

    /** @return array<string, mixed> the inline policy of "10/5s" */
    public static function settings(string $text): array
    {
        $unit = null;
        if (preg_match('#^\s*([1-9]\d*)\s*/\s*([1-9]\d*)?\s*([a-z]+)\s*$#', $text, $found)) {
            $unit = self::UNITS[$found[3]] ?? self::UNITS[preg_replace('/s$/', '', $found[3])] ?? null;
        }
        if ($unit === null) {
            throw new \InvalidArgumentException(var_export($text, true) . ' is not a limit such as "10/5s" or "5000/day"');
        }
        $window = ($found[2] === '' ? '1' : $found[2]) . $unit;
        return ['algorithm' => 'fixed_window', 'limit' => (int) $found[1], 'window' => $window, 'start' => 'first_hit'];
    }
}
