<?php

declare(strict_types=1);

namespace Ratelimitd;

/** What became of a request. @internal for the middlewares */
final class Admission
{
    /** @var list<Asked> in the order of the limits */
    public array $asked = [];
    /** the one that denied, with the decision about all that were asked with it */
    public ?Asked $denied = null;
    public ?Decision $denial = null;
    /** no decision was made, and a limit denies then */
    public bool $isUnavailable = false;

    public function __construct(private readonly Limiter $limiter)
    {
    }

    public function isRefused(): bool
    {
        return $this->denied !== null || $this->isUnavailable;
    }

    /** For the handler: of several limits the one that has least left; null if no decision was made. */
    public function decision(?Decision $earlier = null): ?Decision
    {
        $found = $earlier;
        foreach ($this->asked as $asked) {
            if ($asked->decision !== null && ($found === null || $asked->decision->remaining < $found->remaining)) {
                $found = $asked->decision;
            }
        }
        return $found;
    }

    /** @return list<array{string, string}> the header fields about the limits */
    public function fields(): array
    {
        $fields = [];
        foreach (['ietf', 'legacy'] as $form) {
            $shown = [];
            foreach ($this->asked as $asked) {
                if ($asked->decision !== null && in_array($asked->limit->headers ?? $this->limiter->headers, [$form, 'both'], true)) {
                    $shown[] = $asked->decision;
                }
            }
            array_push($fields, ...Http::headers($shown, $form, $this->limiter->reset));
        }
        return $this->isRefused() ? [...$fields, ...Http::retryAfter($this->denial)] : $fields;
    }

    /** @return array{int, string, string} status, Content-Type and body of the answer to a refused request */
    public function answer(object $request): array
    {
        $accept = Requests::lines($request, 'Accept');
        return Http::refusal($this->denial, $accept === [] ? null : implode(', ', $accept));
    }

    /** The application's own answer to a denied request, if it has one. */
    public function ownAnswer(object $request): ?object
    {
        $respond = $this->denied === null ? null : $this->denied->limit->respond ?? $this->limiter->respond;
        return $respond === null ? null : $respond($request, $this->denial);
    }

    public function holdsSlots(): bool
    {
        return array_filter($this->asked, static fn (Asked $asked): bool => $asked->slot !== null) !== [];
    }

    /** The handler has answered: charge what depends on its answer, or give it back. */
    public function settle(object $request, object $response): void
    {
        try {
            foreach ($this->asked as $asked) {
                if ($asked->reservation !== null || $asked->isCharged) {
                    $this->settleOne($asked, ($asked->limit->chargeWhen)($response, $request));
                }
            }
        } catch (\Throwable $failure) {
            $this->end();
            throw $failure;
        }
    }

    private function settleOne(Asked $asked, mixed $isMeant): void
    {
        $reservation = $asked->reservation;
        if (!$isMeant) {
            $this->giveBack($asked);
        } elseif ($reservation !== null) {
            $asked->reservation = null;
            $this->limiter->quietly(static fn () => $reservation->settle($asked->cost));
        }
        $asked->isCharged = false;
    }

    /** The answer has ended, or there is none: give back what is held. */
    public function end(): void
    {
        foreach ($this->asked as $asked) {
            $asked->slot?->release();
            $asked->slot = null;
            $this->giveBack($asked);
        }
    }

    private function giveBack(Asked $asked): void
    {
        [$reservation, $isCharged] = [$asked->reservation, $asked->isCharged];
        [$asked->reservation, $asked->isCharged] = [null, false];
        if ($reservation !== null) {
            $this->limiter->quietly(static fn () => $reservation->cancel());
        } elseif ($isCharged) {
            $this->limiter->quietly(fn () => $this->limiter->client->refund($asked->policy, $asked->key, $asked->cost));
        }
    }
}
