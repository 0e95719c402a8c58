// Consumes with nsqjs and prints one JSON line per delivery: `nsqjs_consumer.js OPTIONS`, as
// `pynsq_consumer.py`, without `batch`. One option more: `connection`, options of nsqjs's own (tls,
// snappy, deflate, ...).

'use strict'

const nsq = require('nsqjs')
const {NSQDConnection} = require('nsqjs/lib/nsqdconnection')
const connection = require('./nsqjs_connection')

const TOUCH_EVERY_MS = 900
const TOUCHES = 3
const LINGER_MS = 200 // the last FIN has to leave

const options = JSON.parse(process.argv[2])
const first = options.first || 'finish'
let left = options.count
let heartbeats = 0

// The library answers heartbeats and says nothing about them.
const write = NSQDConnection.prototype.write
NSQDConnection.prototype.write = function (data) {
  if (data.toString() === 'NOP\n') heartbeats += 1
  return write.call(this, data)
}

const settings = {
  maxInFlight: options.max_in_flight || 1,
  heartbeatInterval: 1,
  maxAttempts: 0,
  maxBackoffDuration: 60, // the first backoff takes a 36th of it
  lookupdPollInterval: 1,
  ...connection(options.connection),
}
if (options.lookupd) settings.lookupdHTTPAddresses = [options.lookupd]
else settings.nsqdTCPAddresses = [`127.0.0.1:${options.port}`]
if (first === 'as it says') settings.messageTimeout = 2000

const reader = new nsq.Reader(options.topic, options.channel, settings)

function finish(message) {
  message.finish()
  left -= 1
  if (left === 0) {
    setTimeout(() => {
      reader.close()
      process.exit(0)
    }, LINGER_MS)
  }
}

function touch(message, times) {
  if (times === 0) return finish(message)
  message.touch()
  setTimeout(() => touch(message, times - 1), TOUCH_EVERY_MS)
}

reader.on('message', (message) => {
  console.log(JSON.stringify({
    body: message.body.toString(),
    attempts: message.attempts,
    at: Number(process.hrtime.bigint()) / 1e9,
    heartbeats,
  }))
  const act = first === 'as it says' ? message.body.toString() : first
  if (message.attempts > 1 || act === 'finish') finish(message)
  else if (act === 'requeue') message.requeue(0, false)
  else if (act === 'requeue later') message.requeue(1000, false)
  else if (act === 'requeue with backoff') message.requeue(0, true)
  else if (act === 'touch') touch(message, TOUCHES)
})

reader.on('error', (error) => {
  console.error(error)
  if (!options.lookupd) process.exit(1) // else lookupd names another nsqd, or this one again
})

reader.connect()
