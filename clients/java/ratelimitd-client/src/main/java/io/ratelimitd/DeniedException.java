package io.ratelimitd;

/** A limit denied {@link RateLimitClient#acquire} or {@link RateLimitClient#reserve}, so there is nothing to hold. */
public final class DeniedException extends RateLimitException {
    private static final long serialVersionUID = 1L;
    private final transient Decision decision;

    public DeniedException(String policy, Decision decision) {
        super("denied by " + (decision.boundBy() == null ? policy : decision.boundBy())
                + (decision.retryAfterMs() < 0 ? "" : ", try again in " + decision.retryAfterMs() + " ms"), null);
        this.decision = decision;
    }

    public Decision decision() {
        return decision;
    }
}
