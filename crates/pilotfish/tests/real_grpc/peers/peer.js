// The same peer as peer.py, with Node's gRPC: the commands are told there.
'use strict';

const readline = require('node:readline');
const grpc = require('@grpc/grpc-js');
const xds = require('@grpc/grpc-js-xds');

xds.register();

const SERVICE = '/pilotfish.test.Echo/';
const bytes = (value) => value;

function methodOf(path) {
  return { path, requestStream: false, responseStream: false,
    requestSerialize: bytes, requestDeserialize: bytes, responseSerialize: bytes, responseDeserialize: bytes };
}

function serve(address, name, credentials) {
  const server = credentials === 'xds' ? new xds.XdsServer() : new grpc.Server();
  const answer = (call, callback) => callback(null, Buffer.from(name));
  server.addService({ Who: methodOf(`${SERVICE}Who`), Admin: methodOf(`${SERVICE}Admin`) },
    { Who: answer, Admin: answer });
  const plain = grpc.ServerCredentials.createInsecure();
  const chosen = credentials === 'xds' ? new xds.XdsServerCredentials(plain) : plain;
  return new Promise((resolve, reject) => {
    server.bindAsync(address, chosen, (error, port) => (error ? reject(error) : resolve(port)));
    // An XdsServer says that it is bound only when its listener has come, which is not what is asked here.
    if (credentials === 'xds') resolve(Number(address.slice(address.lastIndexOf(':') + 1)));
  });
}

const clients = new Map();

function clientOf(target, credentials) {
  const key = `${credentials} ${target}`;
  if (!clients.has(key)) {
    const plain = grpc.credentials.createInsecure();
    const chosen = credentials === 'xds' ? new xds.XdsChannelCredentials(plain) : plain;
    clients.set(key, new grpc.Client(target, chosen));
  }
  return clients.get(key);
}

function ask(client, { ':path': path = `${SERVICE}Who`, ...headers }) {
  const metadata = new grpc.Metadata();
  for (const [name, value] of Object.entries(headers)) metadata.set(name, value);
  const deadline = Date.now() + 10_000;
  return new Promise((resolve) => {
    client.makeUnaryRequest(path, bytes, bytes, Buffer.alloc(0), metadata, { deadline }, (error, value) => {
      resolve(error ? `${grpc.status[error.code]}: ${error.details}` : value.toString());
    });
  });
}

function count(tally, who) {
  tally[who] = (tally[who] || 0) + 1;
}

async function askOften(client, times, headers) {
  const tally = {};
  for (let n = 0; n < times; n += 1) count(tally, await ask(client, headers));
  return tally;
}

const load = { tally: {}, stopping: false, done: Promise.resolve() };

async function sendUntilStopped(client) {
  while (!load.stopping) count(load.tally, await ask(client, {}));
}

async function answer([command, ...rest]) {
  switch (command) {
    case 'serve':
      return serve(...rest);
    case 'ask': {
      const [target, credentials, times, headers] = rest;
      return askOften(clientOf(target, credentials), times, headers);
    }
    case 'load':
      load.done = sendUntilStopped(clientOf(...rest));
      return null;
    case 'sent':
      return Object.values(load.tally).reduce((sum, times) => sum + times, 0);
    case 'stop':
      load.stopping = true;
      await load.done;
      return load.tally;
    default:
      throw new Error(`unknown command ${command}`);
  }
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    process.stdout.write(`${JSON.stringify(await answer(JSON.parse(line)))}\n`);
  }
  // Servers and channels would keep the process alive.
  process.exit(0);
}

main();
