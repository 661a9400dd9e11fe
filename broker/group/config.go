package group

import (
	"math"
	"time"
)

// NewMemberJoin bounds how long the first join of a new member may be in flight
// before the member is dropped: it cannot send heartbeats yet, and a client that
// went away would otherwise hold the rebalance up for ever.
const NewMemberJoin = 5 * time.Minute

// Config is what a coordinator can be told about its groups. It does not change
// during the life of a Group.
type Config struct {
	// InitialDelay is how long an empty classic group waits for more members
	// before its first rebalance; each new one extends it by as much again.
	InitialDelay time.Duration
	// MinSession and MaxSession bound the session timeout of a classic member.
	MinSession, MaxSession time.Duration
	// MaxSize bounds the members of a classic group.
	MaxSize int

	// ConsumerSession is the session of members of the consumer protocol.
	ConsumerSession time.Duration
	// ConsumerHeartbeat is how often they are told to show that they live.
	ConsumerHeartbeat time.Duration
	// ConsumerMaxSize bounds the members of a group of the consumer protocol.
	ConsumerMaxSize int
	// AssignmentInterval is the least time between two target assignments.
	AssignmentInterval time.Duration
	// Assignors are the names of those that may be used, the default one first.
	Assignors []string
	// Migration says which groups with members may change their protocol.
	Migration Migration
}

// Migration is a policy: in which direction a group that has members may go from
// one protocol to the other. Groups without members always may.
type Migration uint8

// The policies, by Kafka's names.
const (
	MigrationDisabled      Migration = iota // disabled: classic clients are not let into consumer groups either
	MigrationUpgrade                        // upgrade: to the consumer protocol, when a member of it joins
	MigrationDowngrade                      // downgrade: to the classic protocol, when the last member of the other leaves
	MigrationBidirectional                  // bidirectional
)

// String is Kafka's name of the policy.
func (m Migration) String() string {
	return [...]string{
		MigrationDisabled: "disabled", MigrationUpgrade: "upgrade", MigrationDowngrade: "downgrade", MigrationBidirectional: "bidirectional",
	}[m]
}

// Migrations lists the policies.
func Migrations() []Migration {
	return []Migration{MigrationDisabled, MigrationUpgrade, MigrationDowngrade, MigrationBidirectional}
}

func (m Migration) upgrades() bool   { return m == MigrationUpgrade || m == MigrationBidirectional }
func (m Migration) downgrades() bool { return m == MigrationDowngrade || m == MigrationBidirectional }

// DefaultConfig holds Kafka's defaults.
func DefaultConfig() Config {
	return Config{
		InitialDelay:       3 * time.Second,
		MinSession:         6 * time.Second,
		MaxSession:         30 * time.Minute,
		MaxSize:            math.MaxInt32,
		ConsumerSession:    45 * time.Second,
		ConsumerHeartbeat:  5 * time.Second,
		ConsumerMaxSize:    math.MaxInt32,
		AssignmentInterval: time.Second,
		Assignors:          []string{Uniform, Range},
		Migration:          MigrationBidirectional,
	}
}
