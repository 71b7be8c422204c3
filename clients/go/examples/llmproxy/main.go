// A proxy of a language model: a request, its tokens and a slot are one admission, settled when the answer has ended.
//
// UPSTREAM is where the model is, UPSTREAM_KEY the key for it. API_KEYS are the customers: {"SHA-256 of a key": "name"}.
// The policy is that of docs/recipes.md, "A gateway of language models".
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
	"github.com/ratelimitd/ratelimitd/clients/go/examples/service"
	"github.com/ratelimitd/ratelimitd/clients/go/rlhttp"
)

const (
	path             = "/v1/chat/completions"
	questionBytesMax = 1 << 20
	answerTokensMax  = 4096
	answerTimeMax    = 10 * time.Minute // what takes longer is broken off, because its reservation ends
	bytesPerToken    = 4                // of a question, about
)

type proxy struct {
	limiter   *ratelimit.Client
	customers map[string]string
}

func main() {
	p := &proxy{limiter: ratelimit.New(service.Timeout())}
	defer p.limiter.Close()
	if err := json.Unmarshal([]byte(os.Getenv("API_KEYS")), &p.customers); err != nil {
		log.Fatal("API_KEYS: ", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+path, p.complete)
	service.Run(mux)
}

func (p *proxy) complete(w http.ResponseWriter, r *http.Request) {
	key := sha256.Sum256([]byte(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")))
	customer, known := p.customers[hex.EncodeToString(key[:])]
	if !known {
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "this key is not known", http.StatusUnauthorized)
		return
	}
	question, answerTokens, status := checked(w, r)
	if status != 0 {
		http.Error(w, "a question is a JSON object of at most 1 MiB, with a list of messages and max_tokens up to 4096", status)
		return
	}
	questionTokens := int64(len(question) / bytesPerToken)

	ctx, cancel := context.WithTimeout(r.Context(), answerTimeMax)
	defer cancel()
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTimeMax)) // for a client that reads nothing
	reservation, decision, err := p.limiter.Reserve(ctx, "llm", customer, questionTokens+answerTokens, ratelimit.TTL(answerTimeMax))
	var unavailable *ratelimit.UnavailableError
	switch form := (rlhttp.Form{}); {
	case errors.As(err, &unavailable):
		form.WriteUnavailable(w, r) // an answer costs money: without a decision, none
		return
	case err != nil:
		log.Print(err)
		http.Error(w, "Internal Server Error", http.StatusInternalServerError)
		return
	case !decision.Allowed:
		form.WriteDenied(w, r, decision)
		return
	default:
		form.AddHeaders(w.Header(), decision)
	}

	// However the answer ends, this frees the slot: also when the client has left, or the upstream breaks off.
	used := int64(0)
	defer func() { reservation.Settle(ctx, used) }()

	request, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv("UPSTREAM")+path, bytes.NewReader(question))
	if err != nil {
		panic(err) // UPSTREAM is no URL
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+os.Getenv("UPSTREAM_KEY"))
	answer, err := http.DefaultClient.Do(request)
	if err == nil {
		defer answer.Body.Close()
	}
	if err != nil || answer.StatusCode != http.StatusOK {
		http.Error(w, "the model does not answer", http.StatusBadGateway)
		return
	}

	used = questionTokens
	w.Header().Set("Content-Type", "text/event-stream")
	for lines := bufio.NewReader(answer.Body); ; {
		line, err := lines.ReadBytes('\n')
		used = counted(line, used)
		w.Write(line)
		if lines.Buffered() == 0 {
			http.NewResponseController(w).Flush()
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler) // the client sees that the answer is not complete
		}
	}
}

// checked returns the question for the upstream, of known fields alone (another one may ask for more), or a status.
func checked(w http.ResponseWriter, r *http.Request) (question []byte, answerTokens int64, status int) {
	var asked struct {
		Messages  []json.RawMessage `json:"messages"`
		MaxTokens *int64            `json:"max_tokens"`
	}
	var tooLarge *http.MaxBytesError
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, questionBytesMax))
	if errors.As(err, &tooLarge) {
		return nil, 0, http.StatusRequestEntityTooLarge
	}
	if err != nil || json.Unmarshal(body, &asked) != nil || asked.Messages == nil {
		return nil, 0, http.StatusBadRequest
	}
	answerTokens = answerTokensMax
	if asked.MaxTokens != nil {
		answerTokens = *asked.MaxTokens
	}
	if answerTokens < 1 || answerTokens > answerTokensMax {
		return nil, 0, http.StatusBadRequest
	}
	question, err = json.Marshal(map[string]any{"model": "small", "messages": asked.Messages, "max_tokens": answerTokens,
		"stream": true, "stream_options": map[string]bool{"include_usage": true}})
	if err != nil {
		return nil, 0, http.StatusBadRequest
	}
	return question, answerTokens, 0
}

// counted adds about one token for each event, until the upstream reports their number.
func counted(line []byte, used int64) int64 {
	var event struct {
		Usage *struct {
			TotalTokens int64 `json:"total_tokens"`
		} `json:"usage"`
	}
	text, isEvent := bytes.CutPrefix(line, []byte("data: "))
	switch {
	case !isEvent || json.Unmarshal(text, &event) != nil: // between events, and [DONE]
		return used
	case event.Usage == nil:
		return used + 1
	}
	return event.Usage.TotalTokens
}
