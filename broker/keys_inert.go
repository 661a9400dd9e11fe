package broker

import (
	"strings"

	"github.com/weirmq/weir/wire"
)

// inertKeyList holds the broker keys of Kafka that have no effect on this node: a
// configuration written for Kafka starts, with one warning that names them. Those that
// Kafka 4.4 shows have a type, and "=" with Kafka's default, or "-" where it has none
// or a class of Java. Those without a type belong to older versions or to Kafka alone.
const inertKeyList = `
add.partitions.to.txn.retry.backoff.max.ms int =100
add.partitions.to.txn.retry.backoff.ms int =20
advertised.host.name
advertised.port
allow.everyone.if.no.acl.found
alter.config.policy.class.name class -
alter.log.dirs.replication.quota.window.num int =11
alter.log.dirs.replication.quota.window.size.seconds int =1
authorizer.class.name string =
auto.include.jmx.reporter
auto.leader.rebalance.enable boolean =true
background.threads int =10
broker.id.generation.enable
broker.session.uuid
client.quota.callback.class class -
compression.gzip.level int =-1
compression.lz4.level int =9
compression.type string =producer
compression.zstd.level int =3
config.providers list =
connection.failed.authentication.delay.ms int =100
connections.max.reauth.ms long =0
control.plane.listener.name
controlled.shutdown.enable boolean =true
controlled.shutdown.max.retries
controlled.shutdown.retry.backoff.ms
controller.listener.names list -
controller.performance.always.log.threshold.ms
controller.performance.sample.period.ms
controller.quorum.append.linger.ms int =25
controller.quorum.auto.join.enable boolean =false
controller.quorum.bootstrap.servers list =
controller.quorum.election.backoff.max.ms int =1000
controller.quorum.election.timeout.ms int =1000
controller.quorum.fetch.max.bytes int =1048576
controller.quorum.fetch.snapshot.max.bytes int =1048576
controller.quorum.fetch.timeout.ms int =2000
controller.quorum.request.timeout.ms int =2000
controller.quorum.retry.backoff.ms int =20
controller.quorum.voters list =
controller.quota.window.num int =11
controller.quota.window.size.seconds int =1
controller.socket.timeout.ms int =30000
cordoned.log.dirs list =
create.topic.policy.class.name class -
delegation.token.expiry.check.interval.ms long =3600000
delegation.token.expiry.time.ms long =86400000
delegation.token.master.key
delegation.token.max.lifetime.ms long =604800000
delegation.token.secret.key password -
delete.records.purgatory.purge.interval.requests int =1
delete.topic.enable boolean =true
early.start.listeners list -
eligible.leader.replicas.enable
errors.deadletterqueue.auto.create.topics.enable boolean =false
errors.deadletterqueue.topic.name.prefix string =dlq.
fetch.purgatory.purge.interval.requests int =1000
follower.fetch.last.tiered.offset.enable boolean =false
group.consumer.assignor.offload.enable
group.consumer.max.assignment.interval.ms int =15000
group.consumer.max.heartbeat.interval.ms int =15000
group.consumer.max.session.timeout.ms int =60000
group.consumer.min.assignment.interval.ms int =0
group.consumer.min.heartbeat.interval.ms int =5000
group.consumer.min.session.timeout.ms int =45000
group.consumer.regex.refresh.interval.ms
group.coordinator.append.linger.ms int =-1
group.coordinator.background.threads int =2
group.coordinator.cached.buffer.max.bytes int =1048588
group.coordinator.new.enable
group.coordinator.rebalance.protocols list =classic,consumer,streams
group.coordinator.threads int =4
group.share.assignment.interval.ms int =1000
group.share.assignor.offload.enable
group.share.assignors list =simple
group.share.delivery.count.limit int =5
group.share.dlq.manager.class.name
group.share.heartbeat.interval.ms int =5000
group.share.initialize.retry.interval.ms
group.share.max.assignment.interval.ms int =15000
group.share.max.delivery.count.limit int =10
group.share.max.heartbeat.interval.ms int =15000
group.share.max.partition.max.record.locks int =4000
group.share.max.record.lock.duration.ms int =60000
group.share.max.session.timeout.ms int =60000
group.share.max.share.sessions int =2000
group.share.max.size int =200
group.share.min.assignment.interval.ms int =0
group.share.min.delivery.count.limit int =2
group.share.min.heartbeat.interval.ms int =5000
group.share.min.partition.max.record.locks int =100
group.share.min.record.lock.duration.ms int =15000
group.share.min.session.timeout.ms int =45000
group.share.partition.max.record.locks int =2000
group.share.persister.class.name
group.share.record.lock.duration.ms int =30000
group.share.session.timeout.ms int =45000
group.streams.acceptable.recovery.lag
group.streams.assignment.interval.ms int =1000
group.streams.assignor.offload.enable
group.streams.assignors list =sticky
group.streams.heartbeat.interval.ms int =5000
group.streams.initial.rebalance.delay.ms int =3000
group.streams.max.assignment.interval.ms int =15000
group.streams.max.heartbeat.interval.ms int =15000
group.streams.max.session.timeout.ms int =60000
group.streams.max.size int =2147483647
group.streams.max.standby.replicas int =2
group.streams.max.warmup.replicas
group.streams.min.assignment.interval.ms int =0
group.streams.min.heartbeat.interval.ms int =5000
group.streams.min.session.timeout.ms int =45000
group.streams.min.task.offset.interval.ms
group.streams.num.standby.replicas int =0
group.streams.num.warmup.replicas
group.streams.rack.aware.assignment.tags list =
group.streams.session.timeout.ms int =45000
group.streams.task.offset.interval.ms
group.streams.topology.description.plugin.class class -
host.name
initial.broker.registration.timeout.ms int =60000
inter.broker.listener.name string -
inter.broker.protocol.version
internal.metadata.delete.delay.millis
internal.metadata.log.segment.bytes
internal.metadata.max.batch.size.in.bytes
kafka.metrics.polling.interval.secs int =10
kafka.metrics.reporters list =
leader.imbalance.check.interval.seconds long =300
leader.imbalance.per.broker.percentage
listener.security.protocol.map string =SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
log.cleaner.io.buffer.load.factor double =0.9
log.cleaner.io.buffer.size int =524288
log.cleaner.threads int =1
log.dir.failure.timeout.ms long =30000
log.flush.interval.messages long =9223372036854775807
log.flush.offset.checkpoint.interval.ms int =60000
log.flush.scheduler.interval.ms long =9223372036854775807
log.flush.start.offset.checkpoint.interval.ms int =60000
log.index.size.max.bytes int =10485760
log.initial.task.delay.ms
log.local.retention.bytes long =-2
log.local.retention.ms long =-2
log.message.downconversion.enable
log.message.format.version
log.message.timestamp.after.max.ms long =3600000
log.message.timestamp.before.max.ms long =9223372036854775807
log.message.timestamp.difference.max.ms
log.message.timestamp.type string =CreateTime
log.preallocate boolean =false
log.remote.copy.lag.bytes long =-1
log.remote.copy.lag.ms long =0
log.roll.jitter.hours int =0
log.roll.jitter.ms long -
log.segment.delete.delay.ms long =60000
max.connection.creation.rate int =2147483647
max.connections.per.ip.overrides string =
max.decompressed.message.bytes int =2147483639
max.request.partition.size.limit int =2000
metadata.log.dir string -
metadata.log.max.record.bytes.between.snapshots long =20971520
metadata.log.max.snapshot.interval.ms long =3600000
metadata.log.segment.bytes int =1073741824
metadata.log.segment.min.bytes
metadata.log.segment.ms long =604800000
metadata.max.idle.interval.ms int =500
metadata.max.retention.bytes long =104857600
metadata.max.retention.ms long =604800000
metric.reporters list -
metrics.num.samples int =2
metrics.recording.level string =INFO
metrics.sample.window.ms long =30000
num.io.threads int =8
num.network.threads int =3
num.recovery.threads.per.data.dir int =2
num.replica.alter.log.dirs.threads int -
num.replica.fetchers int =1
offsets.commit.required.acks
offsets.commit.timeout.ms int =5000
offsets.load.buffer.size int =5242880
offsets.topic.compression.codec int =0
offsets.topic.num.partitions int =50
offsets.topic.replication.factor short =3
offsets.topic.segment.bytes int =104857600
password.encoder.cipher.algorithm
password.encoder.iterations
password.encoder.key.length
password.encoder.keyfactory.algorithm
password.encoder.old.secret
password.encoder.secret
port
principal.builder.class class -
process.roles list -
producer.id.expiration.check.interval.ms
producer.id.expiration.ms int =86400000
producer.purgatory.purge.interval.requests int =1000
queued.max.requests int =500
quota.window.num int =11
quota.window.size.seconds int =1
remote.fetch.max.wait.ms int =500
remote.list.offsets.request.timeout.ms long =30000
remote.log.index.file.cache.total.size.bytes long =1073741824
remote.log.index.file.cache.ttl.ms
remote.log.manager.copier.thread.pool.size int =10
remote.log.manager.copy.max.bytes.per.second long =9223372036854775807
remote.log.manager.copy.quota.window.num int =11
remote.log.manager.copy.quota.window.size.seconds int =1
remote.log.manager.expiration.thread.pool.size int =10
remote.log.manager.fetch.max.bytes.per.second long =9223372036854775807
remote.log.manager.fetch.quota.window.num int =11
remote.log.manager.fetch.quota.window.size.seconds int =1
remote.log.manager.follower.thread.pool.size int =2
remote.log.manager.task.interval.ms long =30000
remote.log.manager.task.retry.backoff.max.ms
remote.log.manager.task.retry.backoff.ms
remote.log.manager.task.retry.jitter
remote.log.manager.thread.pool.size int =2
remote.log.metadata.custom.metadata.max.bytes int =128
remote.log.metadata.manager.class.name string -
remote.log.metadata.manager.class.path string -
remote.log.metadata.manager.impl.prefix string =rlmm.config.
remote.log.metadata.manager.listener.name string -
remote.log.reader.max.pending.tasks int =100
remote.log.reader.threads int =10
remote.log.storage.manager.class.name string -
remote.log.storage.manager.class.path string -
remote.log.storage.manager.impl.prefix string =rsm.config.
remote.log.storage.system.enable boolean =false
replica.fetch.backoff.ms int =1000
replica.fetch.max.bytes int =1048576
replica.fetch.min.bytes int =1
replica.fetch.response.max.bytes int =10485760
replica.fetch.wait.max.ms int =500
replica.high.watermark.checkpoint.interval.ms long =5000
replica.selector.class string -
replica.socket.receive.buffer.bytes int =65536
replica.socket.timeout.ms int =30000
replication.quota.window.num int =11
replication.quota.window.size.seconds int =1
request.timeout.ms int =30000
reserved.broker.max.id
sasl.client.callback.handler.class class -
sasl.enabled.mechanisms list =GSSAPI
sasl.jaas.config password -
sasl.kerberos.kinit.cmd string =/usr/bin/kinit
sasl.kerberos.min.time.before.relogin long =60000
sasl.kerberos.principal.to.local.rules list =DEFAULT
sasl.kerberos.service.name string -
sasl.kerberos.ticket.renew.jitter double =0.05
sasl.kerberos.ticket.renew.window.factor double =0.8
sasl.login.callback.handler.class class -
sasl.login.class class -
sasl.login.connect.timeout.ms int -
sasl.login.read.timeout.ms int -
sasl.login.refresh.buffer.seconds short =300
sasl.login.refresh.min.period.seconds short =60
sasl.login.refresh.window.factor double =0.8
sasl.login.refresh.window.jitter double =0.05
sasl.login.retry.backoff.max.ms long =10000
sasl.login.retry.backoff.ms long =100
sasl.mechanism.controller.protocol string =GSSAPI
sasl.mechanism.inter.broker.protocol string =GSSAPI
sasl.oauthbearer.allow.unverified.audience boolean =false
sasl.oauthbearer.allow.unverified.issuer boolean =false
sasl.oauthbearer.assertion.algorithm string =RS256
sasl.oauthbearer.assertion.claim.aud string -
sasl.oauthbearer.assertion.claim.exp.seconds int =300
sasl.oauthbearer.assertion.claim.iss string -
sasl.oauthbearer.assertion.claim.jti.include boolean =false
sasl.oauthbearer.assertion.claim.nbf.seconds int =60
sasl.oauthbearer.assertion.claim.sub string -
sasl.oauthbearer.assertion.file string -
sasl.oauthbearer.assertion.private.key.file string -
sasl.oauthbearer.assertion.private.key.passphrase password -
sasl.oauthbearer.assertion.template.file string -
sasl.oauthbearer.client.credentials.client.id string -
sasl.oauthbearer.client.credentials.client.secret password -
sasl.oauthbearer.clock.skew.seconds int =30
sasl.oauthbearer.expected.audience list =
sasl.oauthbearer.expected.issuer string -
sasl.oauthbearer.jwks.endpoint.refresh.ms long =3600000
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms long =10000
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms long =100
sasl.oauthbearer.jwks.endpoint.url string -
sasl.oauthbearer.jwt.retriever.class class -
sasl.oauthbearer.jwt.validator.class class -
sasl.oauthbearer.scope string -
sasl.oauthbearer.scope.claim.name string =scope
sasl.oauthbearer.sub.claim.name string =sub
sasl.oauthbearer.token.endpoint.url string -
sasl.server.callback.handler.class class -
sasl.server.max.receive.size int =524288
security.inter.broker.protocol string =PLAINTEXT
security.providers string -
server.max.startup.time.ms
share.coordinator.append.linger.ms int =-1
share.coordinator.cached.buffer.max.bytes int =1048588
share.coordinator.cold.partition.snapshot.interval.ms
share.coordinator.load.buffer.size int =5242880
share.coordinator.snapshot.update.records.per.snapshot int =500
share.coordinator.state.topic.compression.codec int =0
share.coordinator.state.topic.min.isr short =2
share.coordinator.state.topic.num.partitions int =50
share.coordinator.state.topic.prune.interval.ms
share.coordinator.state.topic.replication.factor short =3
share.coordinator.state.topic.segment.bytes int =104857600
share.coordinator.threads int =1
share.coordinator.write.timeout.ms int =5000
share.fetch.purgatory.purge.interval.requests int =1000
socket.connection.setup.timeout.max.ms long =30000
socket.connection.setup.timeout.ms long =10000
socket.listen.backlog.size int =50
socket.receive.buffer.bytes int =102400
socket.send.buffer.bytes int =102400
ssl.allow.dn.changes boolean =false
ssl.allow.san.changes boolean =false
ssl.cipher.suites list =
ssl.client.auth string =none
ssl.enabled.protocols list =TLSv1.2,TLSv1.3
ssl.endpoint.identification.algorithm string =https
ssl.engine.factory.class class -
ssl.key.password password -
ssl.keymanager.algorithm string =SunX509
ssl.keystore.certificate.chain password -
ssl.keystore.key password -
ssl.keystore.location string -
ssl.keystore.password password -
ssl.keystore.type string =JKS
ssl.principal.mapping.rules string =DEFAULT
ssl.protocol string =TLSv1.3
ssl.provider string -
ssl.secure.random.implementation string -
ssl.trustmanager.algorithm string =PKIX
ssl.truststore.certificates password -
ssl.truststore.location string -
ssl.truststore.password password -
ssl.truststore.type string =JKS
telemetry.max.bytes int =1048576
transaction.abort.timed.out.transaction.cleanup.interval.ms int =10000
transaction.max.timeout.ms int =900000
transaction.partition.verification.enable boolean =true
transaction.remove.expired.transaction.cleanup.interval.ms int =3600000
transaction.state.log.load.buffer.size int =5242880
transaction.state.log.min.isr int =2
transaction.state.log.num.partitions int =50
transaction.state.log.replication.factor short =3
transaction.state.log.segment.bytes int =104857600
transaction.two.phase.commit.enable boolean =false
transactional.id.expiration.ms int =604800000
unclean.leader.election.enable boolean =false
unclean.leader.election.interval.ms
unstable.api.versions.enable
unstable.feature.versions.enable
zookeeper.connect
zookeeper.connection.timeout.ms
zookeeper.max.in.flight.requests
zookeeper.session.timeout.ms
zookeeper.set.acl
`

// inertKey is one of inertKeyList.
type inertKey struct {
	name  string
	kind  string  // "" for one that is not shown
	usual *string // Kafka's default
}

// inertKeys lists the keys that Kafka knows and that have no effect here.
func inertKeys() []inertKey {
	lines := strings.Split(strings.TrimSpace(inertKeyList), "\n")
	out := make([]inertKey, len(lines))
	for i, line := range lines {
		name, rest, _ := strings.Cut(line, " ")
		kind, usual, _ := strings.Cut(rest, " ")
		out[i] = inertKey{name: name, kind: kind}
		if value, ok := strings.CutPrefix(usual, "="); ok {
			out[i].usual = &value
		}
	}
	return out
}

func isInertKey(key string) bool {
	return strings.Contains(inertKeyList, "\n"+key+" ") || strings.Contains(inertKeyList, "\n"+key+"\n")
}

// inertEntries shows the keys that have no effect as Kafka would, for tools that
// expect them. No value tells of this node, and the documentation of each says so.
func inertEntries() []configEntry {
	kinds := map[string]int8{
		"boolean": wire.ConfigTypeBoolean, "string": wire.ConfigTypeString, "int": wire.ConfigTypeInt, "short": wire.ConfigTypeShort,
		"long": wire.ConfigTypeLong, "double": wire.ConfigTypeDouble, "list": wire.ConfigTypeList, "class": wire.ConfigTypeClass,
		"password": wire.ConfigTypePassword,
	}
	var out []configEntry
	for _, k := range inertKeys() {
		if k.kind != "" {
			out = append(out, inertEntry(k.name, kinds[k.kind], k.usual))
		}
	}
	return out
}

func inertEntry(name string, kind int8, usual *string) configEntry {
	return configEntry{
		name: name, kind: kind, readOnly: true, doc: "has no effect here; the value is Kafka's default",
		sources: []configSource{{wire.ConfigSourceDefault, name, usual}},
	}
}
