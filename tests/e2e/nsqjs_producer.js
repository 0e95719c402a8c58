// Publishes with nsqjs, each way it has: `nsqjs_producer.js PORT TOPIC [CONNECTION OPTIONS]`.
//
// The same messages and the same output as `pynsq_producer.py`.

'use strict'

const nsq = require('nsqjs')
const connection = require('./nsqjs_connection')

const DELAY_MS = 400
const WINDOW = 100
const [port, topic, options] = process.argv.slice(2)

const writer = new nsq.Writer('127.0.0.1', Number(port), connection(JSON.parse(options || '{}')))

// nsqjs hands out an error or nothing.
const ok = (error) => (error ? String(error) : 'OK')
const publish = (messages) => new Promise((resolve) => {
  writer.publish(topic, messages, (error) => resolve(ok(error)))
})
// It takes one message only, and wants it in a list.
const defer = (message) => new Promise((resolve) => {
  writer.deferPublish(topic, [message], DELAY_MS, (error) => resolve(ok(error)))
})

writer.on('ready', async () => {
  const answers = [
    await publish('one'),
    await publish(['two', 'three', Buffer.from('four')]),
    await defer('later'),
  ]
  const window = Array.from({length: WINDOW}, (_, number) => publish(`window ${number}`))
  answers.push(...(await Promise.all(window)))
  console.log(JSON.stringify(answers))
  writer.close()
})
writer.on('closed', () => process.exit(0))
writer.on('error', (error) => {
  console.error(error)
  process.exit(1)
})

writer.connect()
