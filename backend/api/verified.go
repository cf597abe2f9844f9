package api

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2/utils"

	"sluice/backend/sale"
)

// verified remembers tokens that were found good, until they expire. Checking one costs as much as everything else that is done for a
// purchase here, and whoever presses a button again and again sends the same one. Bad tokens are never remembered: strangers
// cannot fill it. What stands for a token is its SHA-256, so each takes the same room, about 200 bytes.
type verified struct {
	tokens Verifier
	now    func() time.Time
	most   int // per shard
	shards [64]verifiedShard
}

type verifiedShard struct {
	mu   sync.RWMutex
	good map[[sha256.Size]byte]subject
}

type subject struct {
	buyer   string
	expires time.Time
}

// maxVerified is how many tokens are remembered.
const maxVerified = 64 << 10

func newVerified(tokens Verifier, most int, now func() time.Time) *verified {
	v := &verified{tokens: tokens, now: now}
	v.most = max(1, most/len(v.shards))
	for i := range v.shards {
		v.shards[i].good = map[[sha256.Size]byte]subject{}
	}
	return v
}

// buyer returns the token's subject if the token is valid now and the subject may name a buyer. It keeps nothing of raw.
func (v *verified) buyer(raw string) (string, error) {
	sum := sha256.Sum256(utils.UnsafeBytes(raw))
	shard := &v.shards[int(sum[0])%len(v.shards)]
	shard.mu.RLock()
	found, ok := shard.good[sum]
	shard.mu.RUnlock()
	if ok && v.now().Before(found.expires) {
		return found.buyer, nil
	}
	name, expires, err := v.tokens.VerifyUntil(raw)
	if err == nil {
		err = sale.ValidateBuyer(name)
	}
	if err != nil {
		return "", err
	}
	shard.add(sum, subject{name, expires}, v.most)
	return name, nil
}

func (s *verifiedShard) add(sum [sha256.Size]byte, good subject, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.good[sum]; !there && len(s.good) >= most {
		for other := range s.good { // any one: maps begin anywhere
			delete(s.good, other)
			break
		}
	}
	s.good[sum] = good
}
