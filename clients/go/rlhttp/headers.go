package rlhttp

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
)

// A HeaderMode chooses the headers that report limits to a client.
type HeaderMode string

// The modes. Retry-After comes with a denial in each of them.
const (
	IETF   HeaderMode = "ietf"   // RateLimit-Policy and RateLimit, of draft-ietf-httpapi-ratelimit-headers-10
	Legacy HeaderMode = "legacy" // X-RateLimit-Limit, -Remaining and -Reset
	Both   HeaderMode = "both"
	None   HeaderMode = "none"
)

// A Form of headers. The zero Form is IETF.
type Form struct {
	Mode  HeaderMode
	Epoch bool             // X-RateLimit-Reset is a time of day in seconds since 1970, not a number of seconds
	Now   func() time.Time // nil: time.Now
}

// AddHeaders reports a decision in the headers of the answer. Call it before the answer's status is
// written. It adds to headers that another limiter has set. Nothing is added where no limit counted.
func (f Form) AddHeaders(header http.Header, decision ratelimit.Decision) {
	if f.hasIETF() {
		members := decision.Members
		if members == nil {
			members = []ratelimit.Decision{decision}
		}
		policies, states := items(members)
		add(header, "RateLimit-Policy", policies)
		add(header, "RateLimit", states)
	}
	if f.hasLegacy() {
		f.addLegacy(header, decision)
	}
}

func (f Form) hasIETF() bool   { return f.Mode == "" || f.Mode == IETF || f.Mode == Both }
func (f Form) hasLegacy() bool { return f.Mode == Legacy || f.Mode == Both }

// items are the lists of RateLimit-Policy and RateLimit.
func items(decisions []ratelimit.Decision) (policies, states string) {
	var all [2][]string
	for _, one := range decisions {
		if isNamed(one) && !one.ShadowDenied {
			all[0], all[1] = append(all[0], policyItem(one)), append(all[1], stateItem(one))
		}
	}
	return strings.Join(all[0], ", "), strings.Join(all[1], ", ")
}

func (f Form) addLegacy(header http.Header, whole ratelimit.Decision) {
	if isNamed(whole) && !whole.ShadowDenied {
		header.Set("X-RateLimit-Limit", strconv.FormatInt(whole.Limit, 10))
		header.Set("X-RateLimit-Remaining", strconv.FormatInt(whole.Remaining, 10))
		if ms, ok := untilMore(whole); ok {
			at := seconds(ms)
			if f.Epoch {
				now := time.Now
				if f.Now != nil {
					now = f.Now
				}
				at = seconds(now().UnixMilli() + ms)
			}
			header.Set("X-RateLimit-Reset", strconv.FormatInt(at, 10))
		}
	}
}

func add(header http.Header, name, list string) {
	if list != "" {
		header.Set(name, strings.Join(append(header.Values(name), list), ", "))
	}
}

func policyItem(d ratelimit.Decision) string {
	item := fmt.Sprintf(`%s;q=%d`, quoted(d.Of), d.Quota)
	if d.WindowMS > 0 {
		item += fmt.Sprintf(";w=%d", seconds(d.WindowMS))
	} else {
		item += `;qu="concurrent-requests"`
	}
	if d.Limit > d.Quota {
		item += fmt.Sprintf(";ratelimitd-burst=%d", d.Limit)
	}
	return item
}

func stateItem(d ratelimit.Decision) string {
	item := fmt.Sprintf(`%s;r=%d`, quoted(d.Of), d.Remaining)
	if ms, ok := untilMore(d); ok {
		item += fmt.Sprintf(";t=%d", seconds(ms))
	}
	return item
}

// isNamed: somebody counted, and the limit's name can stand in a field. The daemon is not believed blindly.
func isNamed(d ratelimit.Decision) bool {
	unprintable := func(r rune) bool { return r < 0x20 || r > 0x7e }
	return d.Of != "" && strings.IndexFunc(d.Of, unprintable) < 0
}

// quoted writes a String of Structured Fields.
func quoted(name string) string { return `"` + escapes.Replace(name) + `"` }

var escapes = strings.NewReplacer(`"`, `\"`, `\`, `\\`)

// untilMore is the time until there is more of the limit; false if that is not known.
func untilMore(d ratelimit.Decision) (ms int64, known bool) {
	if d.WindowMS == 0 {
		return 0, false
	}
	if d.Allowed {
		return d.OfResetMS, true
	}
	return d.RetryAfterMS, d.RetryAfterMS >= 0
}

// seconds rounds up.
func seconds(ms int64) int64 {
	if ms <= 0 {
		return 0
	}
	return (ms-1)/1000 + 1
}

const problems = "https://iana.org/assignments/http-problem-types#"

// WriteDenied answers a request with a denial: 429, or 503 where the daemon could not decide and its policy denies then.
func (f Form) WriteDenied(w http.ResponseWriter, r *http.Request, decision ratelimit.Decision) {
	if decision.Source == "deny" {
		f.WriteUnavailable(w, r)
		return
	}
	f.AddHeaders(w.Header(), decision)
	f.writeDenied(w, r, decision, decision.Of != "" && decision.WindowMS == 0)
}

func (f Form) writeDenied(w http.ResponseWriter, r *http.Request, decision ratelimit.Decision, slot bool) {
	text := "Too many requests."
	if after, known := afterSeconds(decision, slot); known {
		text = fmt.Sprintf("Too many requests: try again in %d s.", after)
		w.Header().Set("Retry-After", strconv.FormatInt(after, 10))
	}
	bound := decision.BoundBy
	if bound == "" {
		bound = decision.Of
	}
	problem := map[string]any{}
	if bound != "" {
		problem["violated-policies"] = []string{bound}
	}
	writeProblem(w, r, http.StatusTooManyRequests, "quota-exceeded", "Quota exceeded", problem, text)
}

// afterSeconds is the value of Retry-After; false: it is not known when there is more.
func afterSeconds(denied ratelimit.Decision, slot bool) (int64, bool) {
	return max(1, seconds(denied.RetryAfterMS)), denied.RetryAfterMS >= 0 && !slot
}

// WriteUnavailable answers a request that the daemon did not decide and that may not pass: 503.
func (f Form) WriteUnavailable(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Retry-After", "1")
	writeProblem(w, r, http.StatusServiceUnavailable, "temporary-reduced-capacity", "Temporary reduced capacity", nil,
		"Temporary reduced capacity: try again in 1 s.")
}

func writeProblem(w http.ResponseWriter, r *http.Request, status int, kind, title string, more map[string]any,
	text string) {
	body := text + "\n"
	if takesJSON(r.Header.Values("Accept")) {
		w.Header().Set("Content-Type", "application/problem+json")
		body = fmt.Sprintf(`{"type":%q,"title":%q,"status":%d`, problems+kind, title, status)
		for name, value := range more {
			packed, _ := json.Marshal(value)
			body += fmt.Sprintf(",%q:%s", name, packed)
		}
		body += "}"
	} else {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		w.Write([]byte(body))
	}
}

// takesJSON: the request has no Accept, or one that names JSON, or everything.
func takesJSON(accept []string) bool {
	named := strings.Join(accept, ",")
	if strings.Trim(named, " ,") == "" {
		return true
	}
	for _, kind := range strings.Split(named, ",") {
		name, parameters, _ := strings.Cut(kind, ";")
		name = strings.ToLower(strings.TrimSpace(name))
		if name != "*/*" && name != "application/*" && name != "application/json" && !strings.HasSuffix(name, "+json") {
			continue
		}
		refused := false
		for _, parameter := range strings.Split(parameters, ";") {
			weight, isWeight := strings.CutPrefix(strings.ToLower(strings.ReplaceAll(parameter, " ", "")), "q=")
			value, err := strconv.ParseFloat(weight, 64)
			refused = refused || (isWeight && err == nil && value == 0)
		}
		if !refused {
			return true
		}
	}
	return false
}
