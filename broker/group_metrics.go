package broker

import "github.com/prometheus/client_golang/prometheus"

// groupMetrics describe the groups that this node coordinates.
type groupMetrics struct {
	owned    prometheus.Gauge
	commands prometheus.Counter
	changes  prometheus.Counter
	expired  prometheus.Counter
}

func newGroupMetrics(r registrar) groupMetrics {
	return groupMetrics{
		owned:    r.gauge("group_slots_owned", "Slots of groups that this node coordinates."),
		commands: r.counter("group_commands_total", "Commands of this coordinator that were taken into the metadata log."),
		changes:  r.counter("group_changes_total", "Changes of groups and commits of offsets in those commands."),
		expired:  r.counter("group_offsets_expired_total", "Committed offsets that were given up because they were too old."),
	}
}

// proposed counts one command of n changes.
func (m *groupMetrics) proposed(n int) {
	m.commands.Inc()
	m.changes.Add(float64(n))
}
