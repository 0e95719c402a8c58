// Options of nsqjs's own. Certificates come as names of files, and nsqjs wants what they hold.

'use strict'

const fs = require('fs')

module.exports = (options = {}) => {
  const read = {...options}
  for (const name of ['ca', 'cert', 'key']) {
    if (read[name]) read[name] = fs.readFileSync(read[name])
  }
  return read
}
