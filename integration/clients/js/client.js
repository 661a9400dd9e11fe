// The client program for kafkajs; see the conventions in integration/clients.
'use strict'

const { Kafka, CompressionCodecs, CompressionTypes, logLevel } = require('kafkajs')
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')

const padding = 'a wall in a river. '
const say = fields => process.stdout.write(JSON.stringify(fields) + '\n')

function connect(brokers, retry) {
  return new Kafka({ clientId: 'kafkajs', brokers: brokers.split(','), logLevel: logLevel.WARN, retry,
    logCreator: () => ({ label, log }) => process.stderr.write(`${label} ${log.message} ${log.error || ''}\n`) })
}

// untilReachable tries again while a broker that has just died refuses connections:
// kafkajs gives such an error up to its caller in spite of its retries, now and then.
async function untilReachable(what) {
  for (let tries = 0; ; tries++) {
    try {
      return await what()
    } catch (error) {
      if (error.name !== 'KafkaJSConnectionError' || tries === 50) throw error
      await new Promise(resolve => setTimeout(resolve, 200))
    }
  }
}

async function countPartitions(kafka, topic) {
  const admin = kafka.admin()
  try {
    await admin.connect()
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
    return topics[0].partitions.length
  } finally {
    await admin.disconnect()
  }
}

// produce uses an idempotent producer, which allows one request in flight. When
// a leader dies, kafkajs resolves send although it never sent the records whose
// new leader had already answered for other partitions; only partitions in the
// result were written. The others are sent again.
async function produce(brokers, topic, codec, first, count) {
  const kafka = connect(brokers, { initialRetryTime: 100, maxRetryTime: 1000, retries: 100 })
  const partitions = await untilReachable(() => countPartitions(kafka, topic))
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await untilReachable(() => producer.connect())
  const compression = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy }[codec]
  const end = Number(first) + Number(count)
  for (let n = Number(first); n < end; n += 200) {
    let left = []
    for (let k = n; k < Math.min(n + 200, end); k++) left.push({ n: k, partition: k % partitions, key: `${k}`, value: `${k}:${padding.repeat(10)}` })
    while (left.length > 0) {
      const written = new Set((await producer.send({ topic, compression, acks: -1, messages: left })).map(r => r.partition))
      left.filter(m => written.has(m.partition)).forEach(m => say({ step: 'acked', n: m.n }))
      left = left.filter(m => !written.has(m.partition))
    }
  }
  await producer.disconnect()
}

// group reads until SIGTERM. kafkajs has no consumer without a group. It looks
// for a new coordinator only when the retries at the old one are used up, so
// they are few.
async function group(brokers, topic, groupId) {
  const consumer = connect(brokers, { initialRetryTime: 100, maxRetryTime: 500 }).consumer({ groupId, sessionTimeout: 10000, heartbeatInterval: 1000, maxWaitTimeInMs: 250, retry: { initialRetryTime: 100, maxRetryTime: 500, retries: 3 } })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  process.once('SIGTERM', async () => {
    await consumer.disconnect()
    process.exit(0)
  })
  await consumer.run({
    autoCommitInterval: 500,
    eachMessage: async ({ partition, message }) =>
      say({ step: 'read', partition, offset: Number(message.offset), n: Number(message.value.toString().split(':')[0]) }),
  })
}

const [mode, brokers, topic, ...rest] = process.argv.slice(2)
const steps = { produce, group, read: (b, t) => group(b, t, `reader-${process.pid}`) }
steps[mode](brokers, topic, ...rest).catch(e => {
  say({ step: 'error', error: String(e) })
  process.exit(1)
})
