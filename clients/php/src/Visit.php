<?php

declare(strict_types=1);

namespace Ratelimitd;

/**
 * A request on its way. It may have limits at several places, one after another: the application, a group, the endpoint. Each is asked
 * at its place, and the same policy and key is charged once; if a later place refuses, earlier ones give back.
 *
 * @internal for the middlewares
 */
final class Visit
{
    /** of the request: what keeps it from place to place */
    public const ATTRIBUTE = 'ratelimit.visit';

    /** @var list<Admission> its places, in the order in which they were asked */
    public array $admissions = [];
    /** @var array<string, int> limits so far whose numbers are functions, by the name of the endpoint */
    private array $moving = [];
    /** @var array<string, string> fields as they stand in the answer */
    private array $written = [];

    /** @return list<Asked> */
    public function asked(): array
    {
        return array_merge(...array_map(static fn (Admission $one): array => $one->asked, $this->admissions));
    }

    /** This is the first, the second ... limit of the endpoint whose number is a function. */
    public function countMoving(string $endpoint): int
    {
        return $this->moving[$endpoint] = 1 + ($this->moving[$endpoint] ?? 0);
    }

    private function refusal(): ?Admission
    {
        foreach (array_reverse($this->admissions) as $admission) {
            if ($admission->isRefused()) {
                return $admission;
            }
        }
        return null;
    }

    /** For the handler: that which denied, or of several limits the one that has least left; null if no decision was made. */
    public function decision(): ?Decision
    {
        $found = $this->refusal()?->denial;
        foreach ($found === null ? $this->asked() : [] as $asked) {
            if ($asked->decision !== null && ($found === null || $asked->decision->remaining < $found->remaining)) {
                $found = $asked->decision;
            }
        }
        return $found;
    }

    /** @return list<array{string, string}> the header fields about the limits: each policy once */
    public function fields(): array
    {
        $newest = $fields = [];
        $limiter = $this->admissions === [] ? null : $this->admissions[0]->limiter;
        foreach ($this->asked() as $asked) {
            if ($asked->decision !== null) {
                $newest[$asked->id] = $asked;
            }
        }
        foreach (['ietf', 'legacy'] as $form) {
            $shown = [];
            foreach ($newest as $id => $asked) {
                $of = $asked->decision->of ?? $id;
                $isTighter = !isset($shown[$of]) || self::tightness($asked->decision) < self::tightness($shown[$of]);
                if ($isTighter && in_array($asked->limit->headers ?? $asked->limiter->headers, [$form, 'both'], true)) {
                    $shown[$of] = $asked->decision;
                }
            }
            array_push($fields, ...Http::headers(array_values($shown), $form, $limiter?->reset ?? 'delta'));
        }
        $refusal = $this->refusal();
        return $refusal === null ? $fields : [...$fields, ...Http::retryAfter($refusal->denial)];
    }

    /**
     * The value of a field in an answer that has it already: lists of limits are joined, other fields are replaced. What an earlier
     * place of this request has written goes.
     *
     * @param string $earlier '': it is not there
     */
    public function merged(string $name, string $earlier, string $value): string
    {
        $own = $this->written[$name] ?? '';
        $this->written[$name] = $value;
        if ($own !== '' && str_ends_with($earlier, $own)) {
            $earlier = rtrim(substr($earlier, 0, -strlen($own)), ', ');
        }
        return Http::merged($name, $earlier, $value);
    }

    /** @return array{bool, int} */
    private static function tightness(Decision $decision): array
    {
        return [$decision->allowed, $decision->remaining];
    }
}
